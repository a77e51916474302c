"""The memory of a training step on ranks and GPUs that are not here.

The strategy's own code runs on tensors without contents (torch's FakeTensorMode), in a process
group of the true world size whose collectives do nothing (torch's ``fake`` backend). Every
allocation's lifetime is recorded: no constant is fitted to any measurement.

    simulated_step     the training step, and which parts of it are simulated
    allocations        every allocation and its end, with its category; the peak
    forward_parts      work and memory of one forward pass, part by part
    simulation_report  a table and a plot
"""
