-- What was done with, by age: looking for what may be forgotten reads no more than that.
CREATE INDEX inbox_by_age ON inbox (done_at) WHERE status = 'done';
