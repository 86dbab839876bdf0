"""How each engine writes speculation down: one dialect per engine, found by name in `configs.registry`."""
