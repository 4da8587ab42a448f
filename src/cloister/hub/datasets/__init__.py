"""Datasets: sealed tables, and the only part of the hub that can open them.

Modules in the order of processing (keys and sealing are in `core/keys`):

    chunks        an upload's sealed pieces, as one seekable file
    upload        uploads: begun, received in order, resumed, cancelled
    unpack        CSV, gzip and Parquet as batches of rows, within limits
    bounded       work on uploaded files in a process with limits
    tables        sealed files, checked at every open; a version with its rows, or without for plans
    connect       tables that stay elsewhere: PostgreSQL, a folder of Parquet, Spark
    ingest        from uploads or a connection to a version that is ready
    mock          random rows, from the schema alone
    datasets      the datasets themselves: created, versioned, paused, deleted
    dataset_view  the datasets and schemas that a user may see: the policy decides
    schema_draft  a first schema for uploaded files
    schema_form   a schema as a form and back

No plaintext is written to a disk: pieces are sealed before they are written, and read through a file object that
decrypts in memory.
"""
