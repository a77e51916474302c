"""The language model's packing, but some texts do something to the process that packs them."""
