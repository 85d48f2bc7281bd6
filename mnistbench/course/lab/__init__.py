"""The course lab: trains, profiles, and writes a report on both.

Question: which results does the lab give on this machine?
Input: a dataset, batch sizes, devices, and a directory for the results.
Output: measurements as JSON, which a later call resumes from, and a report in Markdown and HTML.

``run`` is the flow; ``measures`` runs the measurements; ``findings`` stores the results; ``progress`` shows the steps;
``report`` explains them.
"""
