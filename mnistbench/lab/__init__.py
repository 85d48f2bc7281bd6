"""The course lab: trains, profiles, and explains both in one report.

Question: what does the lab measure on this machine, and what does it show?
Input: a dataset, batch sizes, devices, and a directory for the results.
Output: measurements as JSON, which a later call resumes from, and a report in Markdown and HTML.

``run`` is the flow; ``measures`` runs the measurements; ``findings`` stores the results; ``progress`` shows the steps;
``report`` explains them.
"""
