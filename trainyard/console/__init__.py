"""The console: every pipeline, run, step and model in a browser, from AWS or from the emulator."""
