"""Random pipeline definitions on the emulator, and the emulator killed under them."""
