-- Studies, the jobs of each, and which job goes on from which.
CREATE TABLE studies (
  id            TEXT PRIMARY KEY,
  name          TEXT NOT NULL,
  submitted_at  REAL NOT NULL,
  record        BLOB NOT NULL
);
CREATE INDEX studies_by_time ON studies (submitted_at DESC, id DESC);
CREATE INDEX studies_by_name ON studies (name, submitted_at DESC);
ALTER TABLE jobs ADD COLUMN study TEXT;
ALTER TABLE jobs ADD COLUMN study_index INTEGER;
ALTER TABLE jobs ADD COLUMN continues TEXT;
CREATE INDEX jobs_by_study ON jobs (study, study_index, submitted_at) WHERE study IS NOT NULL;
CREATE INDEX jobs_continuing ON jobs (continues) WHERE continues IS NOT NULL
