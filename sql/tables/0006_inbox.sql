-- compatible-from: 1
-- The inbox: how far each consumer is in each stream, one row each, moved in the consumer's own transaction. Every event updates a
-- row that is there already: half of each page is left free, so that its new version finds room beside the old one and no index is
-- touched. COLLATE "C": names are compared byte by byte, whatever the database's collation.
CREATE TABLE :"schema".inbox (
  consumer text COLLATE "C" NOT NULL,
  topic text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  -- The last number that was accepted; one below the first where none was yet.
  seq bigint NOT NULL CHECK (seq >= 0),
  -- Its event's; null where none was accepted yet.
  uuid uuid,
  PRIMARY KEY (consumer, topic, key)
) WITH (fillfactor = 50);
