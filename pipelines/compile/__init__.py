"""Parts of a compiled definition: code folders, images, packages, data, provenance.

``compilation`` uploads what a definition names, by content, so an unchanged commit uploads nothing;
``compile_session`` stands in for the SDK's session, so that nothing is sent while compiling;
``pipeline_settings`` makes parameters, cache and retry policies of the recipe.
``quiet_sdk`` imports the SDK cheaply.
"""
