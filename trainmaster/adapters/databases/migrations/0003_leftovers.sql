-- Jobs whose record is gone and whose files are being cleared.
CREATE TABLE leftovers (
  job_id TEXT PRIMARY KEY,
  code   TEXT
) WITHOUT ROWID;
