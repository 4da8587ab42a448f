"""The store: sealed tables, and the only place that can open one.

Read in the order of the work:

    keys        the master key, one data key a dataset, sealing
    chunks      an upload's sealed pieces, as one file that can be read anywhere
    upload      files on their way: begun, received in order, resumed, cancelled
    unpack      CSV, gzip and Parquet as batches of rows, within limits
    sealed      a table as one encrypted Parquet file, checked at every open
    connect     tables that stay elsewhere: PostgreSQL, a folder of Parquet, Spark
    ingest      from uploads or a connection to a version that is ready
    twin        a version without its rows, for plans
    mock        invented rows, from the schema alone
    datasets    the datasets themselves: made, versioned, opened, paused, deleted
    sight       which of them somebody may know of, and what of them: the policy decides
    drafts      a first schema for files that were sent
    schema_form a schema as a form and back

No plaintext is written to a disk: pieces are sealed before they are written, and read through a file object that
decrypts in memory.
"""
