"""What the machine at hand is capable of: its products, memory, links, and what a call costs.

clock     seconds of a call, as a GPU or a processor has them
rank      what each rank measures, all of them at the same time
summary   the device that ``trainyard advise --machine`` reads
"""
