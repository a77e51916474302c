"""The console's pages. Every module in this folder is imported, and has a Blueprint ``page``.

A page reads AWS's API through ``console.account_cache``, and renders a template. Pages change
things only through ``console.actions``. To add a page, add a module and its template.
"""
