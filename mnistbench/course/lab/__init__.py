"""The course lab: trains, profiles, and writes a report on both.

Question: which results does the lab give on this machine?
Input: a dataset, batch sizes, devices, and a directory for the results.
Output: measurements as JSON, which a later call resumes from, and a report in Markdown and HTML.

``measures`` runs the measurements, ``run`` is their flow, ``lab_file`` stores the results.
``sheets`` are the tables of their numbers, ``sentences`` and ``claims`` choose what is said about
them, ``texts`` has the wording, ``chapters`` and ``figures`` make the report. ``predict`` asks what
a student expects, and compares it with the results.
"""
