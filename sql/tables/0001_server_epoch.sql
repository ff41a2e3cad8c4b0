-- compatible-from: 1
-- The server epoch: from one crash, promotion or restore to the next. Transaction ids are valid only within one: after a crash, ids
-- whose WAL was not flushed are assigned again. The table is UNLOGGED, so a crash, a promotion or a restored base backup empties it; a
-- clean restart does not. Its value, a random uuid, is the history: whatever was read outside this transaction is compared by it, and
-- it is in every event that is sent. (Outbox functions name it `life`.) epoch is the generation of its fences, see below.
CREATE UNLOGGED TABLE :"schema".incarnation (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  value uuid NOT NULL,
  epoch bigint NOT NULL,
  timeline text NOT NULL,
  system bigint NOT NULL,
  database oid NOT NULL,
  began_at timestamptz NOT NULL
);

-- What the generation of fences is counted from. A fence is a bigint of 63 bits:
--
--   bits 62 to 40   the generation: the server's timeline + timeline_offset
--   bits 39 to 0    the sequence `fences`
--
-- A promotion begins a new timeline, so that the fences of a promoted standby are above all that its primary gave out, also where the
-- standby had received neither the last of the sequence nor this row. A crash leaves the generation: no caller gets a fence before
-- it is on disk. Where the timeline says nothing about the order (another system identifier or database: a restored dump, a copy; or a
-- timeline that went back), the offset rises above the whole last generation, to the second multiple of 1,024: then also a standby that lacks the
-- new offset has, when it is promoted, a generation above; and promotions of the original, up to 1,024 of them, stay below. A disk that was put back to an earlier state, on the same timeline, shows nothing of that: so each epoch
-- begins its fences at the milliseconds since 2025, above what was given out before, as long as that was fewer than 1,000 a second. So
-- fences grow along one chain of promotions and restores. Two standbys of one primary that are both
-- promoted have the same generation: their fences say nothing about each other, and only the histories (`incarnation.value`) differ.
CREATE TABLE :"schema".epoch (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  system bigint NOT NULL,
  database oid NOT NULL,
  timeline bigint NOT NULL,
  timeline_offset bigint NOT NULL
);
INSERT INTO :"schema".epoch (system, database, timeline, timeline_offset) VALUES (0, 0, 0, 0);
