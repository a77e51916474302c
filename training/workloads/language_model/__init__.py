"""A causal language model of text: decoder-only transformer, rotary positions."""
