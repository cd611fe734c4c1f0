"""The token memory model, executable: it evaluates the blocks of spec/memory_model.md.

relations: the notation and its parser; evaluate: its evaluator over bit sets
values:    integers, poison, and expressions over registers
events:    event programs: blocks, operations, accesses, tokens
event_set: the events that a program can have, and what relates them
litmus:    the text form of small event programs with an expected verdict
candidate: one candidate execution under construction
explore:   every consistent execution of an event program, its outcomes and races
execution: what an exploration finds
view:      one legal execution, sampled by seed
"""
