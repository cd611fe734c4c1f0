"""From tile IR to target text: the plan and the passes that obey it."""
