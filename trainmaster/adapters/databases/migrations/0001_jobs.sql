-- Records, their stories, wakes and leases.
CREATE TABLE jobs (
  id            TEXT PRIMARY KEY,
  name          TEXT NOT NULL,
  phase         TEXT NOT NULL,
  outcome       TEXT,
  submitted_at  REAL NOT NULL,
  revision      INTEGER NOT NULL,
  wake_at       REAL,
  lease_owner   TEXT,
  lease_until   REAL,
  record        BLOB NOT NULL
);
CREATE INDEX jobs_by_time ON jobs (submitted_at DESC, id DESC);
CREATE INDEX jobs_by_name ON jobs (name, submitted_at DESC);
CREATE INDEX jobs_due ON jobs (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX jobs_unfinished ON jobs (submitted_at) WHERE phase <> 'finished';
CREATE TABLE tags (
  job_id TEXT NOT NULL REFERENCES jobs (id),
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID;
CREATE INDEX tags_by_value ON tags (name, value);
CREATE TABLE story (
  job_id TEXT NOT NULL REFERENCES jobs (id),
  seq    INTEGER NOT NULL,
  line   BLOB NOT NULL,
  PRIMARY KEY (job_id, seq)
) WITHOUT ROWID;
CREATE TABLE leases (
  name  TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  until REAL NOT NULL
) WITHOUT ROWID;
