"""Widgets to turn and look at, and the pictures and tables in them.

frame and canvas are what all of them are made of. mismatch_panel has controls, a figure of
five plots (mismatch_figure, mismatch_plots) and a readout; runs_panel has run_plots,
run_table and run_words, and checks what it is given (runs_panel_given); bit_explorer shows
bits; exposure_panel and cap_panel are whole. atlas_table is a table without controls.
"""
