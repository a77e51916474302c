"""What an endpoint really answers, written down: the embedded AWS beside AWS itself.

A set of small pipelines and calls (:mod:`cases`) is run against whatever AWS_ENDPOINT_URL or the
account's credentials lead to; states, shapes, reasons and orders are kept, scrubbed of whatever
differs from run to run and from account to account.
"""
