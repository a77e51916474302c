"""What the machine at hand is capable of: its products, memory, links, and what a call costs.

clock     seconds of a call, as a GPU or a processor has them
rank      what each rank measures, all of them at the same time
alone     what a training's own calls of operators cost, each made alone
pages     the fresh pages of a step, and what one costs
summary   the device that ``trainyard advise --machine`` reads
"""
