"""The trained model in its exported form: weights, artifact, and the code that answers requests.

``artifact`` writes and opens it, ``safetensors_file`` the weights tensor by tensor, ``inference``
answers at an endpoint. ``shipped_files`` says which code each job gets; it is here because jobs
read it, and they have no ``steps`` to import. To ship another room: a row of its ``ROOMS``.
"""
