"""The built-in kinds: what each defaults, forbids and converts."""
