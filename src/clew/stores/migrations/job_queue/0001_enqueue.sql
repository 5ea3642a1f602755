-- The order of claims as a job's priority, of which the greatest comes first: what a process left when it died, then the
-- thread's rank (a priority, or before all of them), then its start tag, of which the greatest 2^27 differ no more.
CREATE FUNCTION clew_job_priority(rank BIGINT, start_tag BIGINT, lease_until BIGINT) RETURNS INTEGER
    LANGUAGE SQL IMMUTABLE RETURN CASE
        WHEN lease_until IS NOT NULL THEN 2147483647
        ELSE (-GREATEST(rank, -6) * 134217728 - LEAST(start_tag, 134217727))::INTEGER
    END;

-- Enqueues a job for this thread if it can be claimed, in the transaction that made it so. There is at most one that waits.
CREATE FUNCTION clew_enqueue(wanted TEXT) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    queue TEXT;
    place INTEGER;
BEGIN
    -- A name of a channel, of which the queue's is a part, has at most 63 bytes.
    SELECT CASE WHEN octet_length(graph) <= 40 THEN graph ELSE md5(graph) END,
            clew_job_priority(rank, start_tag, lease_until)
        INTO queue, place
        FROM threads
        WHERE id = wanted AND status = 'running' AND deleted_at IS NULL
            AND (lease_until IS NULL OR lease_until <= clew_now());
    IF NOT FOUND THEN
        RETURN;
    END IF;
    LOOP
        -- Workers pass over a locked job. One that took it before this transaction ends would find nothing to do.
        -- One that waits gets the thread's present place.
        UPDATE procrastinate_jobs SET priority = place
            WHERE queueing_lock = wanted AND status = 'todo';
        IF FOUND THEN
            RETURN;
        END IF;
        BEGIN
            PERFORM procrastinate_defer_jobs_v1(ARRAY[
                (queue, 'clew.run_thread', place, wanted, wanted, jsonb_build_object('thread_id', wanted), NULL)
            ]::procrastinate_job_to_defer_v1[]);
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            -- Another transaction enqueued it between the two statements.
        END;
    END LOOP;
END;
$$;
