"""The trained model in its exported form: weights, artifact, and the code that responds to
requests.

``artifact`` writes and opens the exported model, ``weight_location`` reads the weights from the
ranks and writes a safetensors file tensor by tensor, and ``inference`` responds to requests at an
endpoint. ``shipped_files`` lists which code each job gets; it is in this package because jobs read
it, and they have no ``steps`` to import. To ship another room (a folder of the checkout), add it to
a row of its ``ROOMS``.
"""
