-- Every query, by name. `-- name:` begins one; the line below says what it is for.

-- name: add_job
-- a new job; the primary key refuses a second one, a note of files that are left refuses it, too
INSERT INTO jobs (id, name, phase, outcome, submitted_at, revision, wake_at, record, study, study_index, continues)
SELECT :id, :name, :phase, :outcome, :submitted_at, :revision, :wake_at, :record, :study, :study_index, :continues
WHERE NOT EXISTS (SELECT 1 FROM leftovers WHERE job_id = :id)

-- name: add_study
-- a new study; the primary key refuses a second one
INSERT INTO studies (id, name, submitted_at, record) VALUES (:id, :name, :submitted_at, :record)

-- name: add_tag
-- one tag of a job
INSERT INTO tags (job_id, name, value) VALUES (:id, :name, :value)

-- name: add_line
-- the next line of a story
INSERT INTO story (job_id, seq, line)
VALUES (:id, (SELECT COALESCE(MAX(seq), 0) + 1 FROM story WHERE job_id = :id), :line)

-- name: load_job
-- the newest record
SELECT record FROM jobs WHERE id = :id

-- name: commit_job
-- compare-and-set on the revision, optionally fenced by a named lease
UPDATE jobs SET phase = :phase, outcome = :outcome, revision = :revision, wake_at = COALESCE(:wake_at, wake_at), record = :record
WHERE id = :id AND revision = :expected
  AND (:lease IS NULL OR EXISTS (SELECT 1 FROM leases WHERE name = :lease AND owner = :owner))

-- name: removable_job
-- a finished job that nobody has to look at any more
SELECT record FROM jobs
WHERE id = :id AND revision = :expected AND phase = 'finished' AND wake_at IS NULL AND lease_owner IS NULL

-- name: remove_empty_studies
-- a study without jobs is nothing
DELETE FROM studies WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.study = studies.id)

-- name: add_leftover
-- a job whose record goes now; its files go next
INSERT INTO leftovers (job_id, code) VALUES (:id, :code)

-- name: leftovers
-- what is left to clear
SELECT job_id, code FROM leftovers ORDER BY job_id

-- name: remove_leftover
-- nothing of it is left
DELETE FROM leftovers WHERE job_id = :id

-- name: remove_tags
-- of a job that goes
DELETE FROM tags WHERE job_id = :id

-- name: remove_story
-- of a job that goes
DELETE FROM story WHERE job_id = :id

-- name: remove_job
-- the record itself
DELETE FROM jobs WHERE id = :id

-- name: all_records
-- who needs what
SELECT record FROM jobs

-- name: wake_job
-- sooner, never later
UPDATE jobs SET wake_at = :at WHERE id = :id AND (wake_at IS NULL OR wake_at > :at)

-- name: wake_all
-- sooner, never later
UPDATE jobs SET wake_at = :at WHERE wake_at > :at

-- name: due_jobs
-- jobs to look at now, longest due first
SELECT id FROM jobs WHERE wake_at <= :now AND (lease_owner IS NULL OR lease_until < :now) ORDER BY wake_at LIMIT :limit

-- name: lease_job
-- take the work lease; the wake is cleared, so that a wake arriving meanwhile shows
UPDATE jobs SET lease_owner = :owner, lease_until = :until, wake_at = :until
WHERE id = :id AND (lease_owner IS NULL OR lease_until < :now)

-- name: give_back_job
-- end the lease; a wake that came meanwhile stays
UPDATE jobs SET lease_owner = NULL, lease_until = NULL,
  wake_at = CASE WHEN wake_at < lease_until THEN MIN(wake_at, COALESCE(:wake_at, wake_at)) ELSE :wake_at END
WHERE id = :id AND lease_owner = :owner

-- name: hold_lease
-- take or renew a named lease
INSERT INTO leases (name, owner, until) VALUES (:name, :owner, :until)
ON CONFLICT (name) DO UPDATE SET owner = :owner, until = :until WHERE owner = :owner OR until < :now

-- name: lease_holder
-- who holds a named lease whose time is not over; the other half of hold_lease
SELECT owner FROM leases WHERE name = :name AND until >= :now

-- name: let_go_lease
-- end a named lease
DELETE FROM leases WHERE name = :name AND owner = :owner

-- name: end_leases
-- the named leases of somebody who is gone
DELETE FROM leases WHERE owner = :owner

-- name: free_jobs
-- the work leases of somebody who is gone; what was under way is looked at now
UPDATE jobs SET lease_owner = NULL, lease_until = NULL, wake_at = :now WHERE lease_owner = :owner

-- name: next_wake
-- when somebody must look again at the latest
SELECT MIN(wake_at) FROM jobs WHERE wake_at IS NOT NULL

-- name: unfinished_jobs
-- everything that is not over, oldest first; the record is fetched only where the revision is new
SELECT id, revision FROM jobs WHERE phase <> 'finished' ORDER BY submitted_at, id

-- name: load_study
-- what was asked
SELECT record FROM studies WHERE id = :id

-- name: newest_studies
-- studies, newest first
SELECT record FROM studies ORDER BY submitted_at DESC, id DESC LIMIT :limit

-- name: study_by_exact_id
-- is this a study?
SELECT id FROM studies WHERE id = :text

-- name: newest_study_named
-- the newest study of a name
SELECT id FROM studies WHERE name = :text ORDER BY submitted_at DESC, id DESC LIMIT 1

-- name: studies_by_prefix
-- ids that begin so
SELECT id FROM studies WHERE id >= :text AND id < :end ORDER BY id LIMIT 10

-- name: children
-- of each combination the newest job: with MAX, the other columns are of the row that has it
SELECT id, study_index, phase, outcome, MAX(submitted_at) FROM jobs WHERE study = :study GROUP BY study_index ORDER BY study_index

-- name: continuations
-- the jobs that go on from a job, oldest first
SELECT record FROM jobs WHERE continues = :id ORDER BY submitted_at, id

-- name: story_lines
-- a story in order
SELECT line FROM story WHERE job_id = :id ORDER BY seq

-- name: jobs_by_exact_id
-- is this an id?
SELECT id FROM jobs WHERE id = :text

-- name: newest_job
-- the job submitted last
SELECT id FROM jobs ORDER BY submitted_at DESC, id DESC LIMIT 1

-- name: newest_job_named
-- the newest job of a name
SELECT id FROM jobs WHERE name = :text ORDER BY submitted_at DESC, id DESC LIMIT 1

-- name: jobs_by_prefix
-- ids that begin so
SELECT id FROM jobs WHERE id >= :text AND id < :end ORDER BY id LIMIT 10

-- name: job_words
-- ids and names that begin so, newest first: what a shell offers
SELECT id, name, phase, outcome FROM jobs
WHERE id >= :text AND id < :end OR name >= :text AND name < :end ORDER BY submitted_at DESC LIMIT :limit

-- name: tag_words
-- tags as NAME=VALUE: what a shell offers
SELECT DISTINCT name || '=' || value FROM tags LIMIT :limit
