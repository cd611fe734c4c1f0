"""The token memory model, executable: it evaluates the blocks of spec/memory_model.md.

relations: the notation and its parser; evaluate: its evaluator over bit sets
values:    integers, poison, and expressions over registers
events:    event programs: blocks, operations, accesses, tokens
event_set: the events that a program can have, and what relates them
litmus:    the text form of small event programs with an expected verdict
candidate: one candidate execution under construction
explore:   every consistent execution of an event program
execution: what an exploration finds; explain: the edge that a race lacks; render: a picture
view:      one legal execution, sampled by seed
ptx:       event programs as PTX threads, held against the PTX models
translate: tile kernels as event programs; run_block, block_memory, places, symbolic: its parts
smt:       the same questions for a solver; smt_values: guards and values as formulas

    result = explore(parse_program(text))
    result.is_race_free, result.outcomes, [missing_edge(race) for race in result.races]
"""
