"""Keep the state of jobs in a database, SQLite or PostgreSQL, through SQLAlchemy Core.

Start reading at `tables.py`. Import its files only where jobs are enabled: SQLAlchemy takes time.
May import SQLAlchemy and `models`, and nothing else of `app`.
"""
