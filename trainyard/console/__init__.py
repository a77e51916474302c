"""The console: pipelines, runs, steps and models in a browser, from AWS or from the emulator."""
