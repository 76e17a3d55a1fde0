"""Read, list and write files of local folders, S3, Google Cloud Storage and Azure, by allow-list.

Start reading at `storage.py`.
May import `models`; obstore is imported when the first bucket is used.
"""
