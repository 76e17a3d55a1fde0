"""Write the results of bulk commands: files of records, folders of images and ZIPs.

Start reading in `journal.py`. It may import the errors, reports and sources of bulk.
"""
