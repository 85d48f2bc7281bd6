"""What a recorded trace of torch.profiler contains.

Input: files that ``export_chrome_trace`` or the TensorBoard handler of torch.profiler wrote
(Kineto's Chrome trace format, JSON). Output: the operation table that a profiled case has, the
timeline of the accelerator, the spread over the ranks of one run. torch is not imported.
"""
