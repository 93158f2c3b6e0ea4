"""The interview: its questions and drills, asked in a terminal, a notebook or by Anki.

- what is asked: `questions` (the bank), `numeric` (drills with fresh numbers), `cases`
  (faults to be found), `cards` (all of it as cards, and what an answer is worth);
- when: `reviews` (the record and FSRS), `sitting` (the cards that come now);
- what is read afterwards: `answers`, `headings` (where the course shows it);
- in a terminal: `terminal`, `wrapping`, `number_entry`, `terminal_cards`, `arguments`, and
  the commands `drill_command` and `mock`;
- in a notebook: `panel`;
- in Anki: `anki` (the deck), `anki_cards` (how cards look), `card_pictures`, `captions`.
"""
