"""Parts of a compiled definition: code folders, images, packages, data, provenance.

``compilation`` describes the folders that a definition refers to by a hash of their content, so
that an unchanged commit uploads nothing. ``compile_session`` replaces the SDK's session, so that
compiling sends no requests. ``pipeline_settings`` makes parameters, cache and retry policies from
the recipe. ``quiet_sdk`` imports the SDK in less time.
"""
