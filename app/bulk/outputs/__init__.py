"""What a bulk command writes: files of records and folders of images, whole or not at all.

Start reading in `results_file.py`. It may import the errors, reports and sources of bulk.
"""
