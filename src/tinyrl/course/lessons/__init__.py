"""What single lessons measure, where it is too long for a cell.

05: conversations, wrong_inputs. 08 and 10: faulty_pairs, one_update. 09: enumerated.
10: watched_runs, alarm_rings, visibility. The atlas: atlas, atlas_inputs.
"""
