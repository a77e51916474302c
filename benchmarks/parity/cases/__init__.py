"""The pipelines and calls that are compared: small, cheap, and each about one thing."""

from trainyard.registration import import_modules

import_modules(__name__, __path__)
