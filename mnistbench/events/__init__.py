"""What ran: the events of a trace or of a profile.

Input: files that ``export_chrome_trace`` or the TensorBoard handler of torch.profiler wrote
(Kineto's Chrome trace format, JSON), or a profile of this process. Output: the operation table of a
profiled case, the timeline of the accelerator, the spread over the ranks of one run. torch is not
imported.

``from_file`` and ``from_profiler`` read into one ``model``. ``links`` finds callers, launches,
phases and modules, and ``table`` makes the rows of operations. ``from_profiler.operation_table`` is
all of this for a profile, and ``analysis`` for a file.
"""
