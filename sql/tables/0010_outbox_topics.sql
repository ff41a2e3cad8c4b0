-- compatible-from: 1
-- The topics that a dispatcher wants, and what was the last position when the list was set. Null: all topics. A name that ends with a star
-- stands for all topics that begin with the rest.
ALTER TABLE :"schema".outbox_dispatchers ADD COLUMN topics text[];
ALTER TABLE :"schema".outbox_dispatchers ADD COLUMN topics_after bigint NOT NULL DEFAULT 0;
