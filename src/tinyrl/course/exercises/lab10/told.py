"""What wrong answers to several exercises are told alike."""

from tinyrl.course.words import Words

PADDING = Words(
    en="The padding is counted, with whatever stands in it. Use the mask.",
    zh="把 padding 里的任意数值也算进去了。请用 mask。",
)
COLUMNS = Words(
    en="You divide by B * T, padding included. Divide by the real tokens.",
    zh="你除以了 B * T，包含 padding。应当除以真实 token 数。",
)
ROWS = Words(
    en="You average each response first. Here each real token counts the same.",
    zh="你先在每条回答内取平均。这里每个真实 token 权重相同。",
)
