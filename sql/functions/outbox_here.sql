-- The server epoch (`life`), and whether the cursors belong to another server (elsewhere). A restored dump, or a copy, contains the cursors, the
-- leases and even the epoch of its original. So every call compares them with the server itself. Otherwise a dispatcher whose address is
-- switched to another server would continue with them. (23 us a call.) `life` is null if no epoch has begun here.
CREATE FUNCTION :"schema".outbox_here(my_dispatcher text, OUT life text, OUT elsewhere boolean)
LANGUAGE plpgsql STABLE SET jit = off
AS $$
DECLARE
  this_system bigint := (SELECT s.system_identifier FROM pg_control_system() AS s);
  this_database oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
BEGIN
  SELECT (SELECT i.value::text FROM :"schema".incarnation i WHERE i.system = this_system AND i.database = this_database),
         NOT EXISTS (SELECT FROM :"schema".outbox_home h WHERE h.system = this_system::text)
         OR EXISTS (SELECT FROM :"schema".outbox_dispatchers d
                     WHERE d.name = my_dispatcher AND (d.system <> this_system::text OR d.database <> this_database::text))
    INTO life, elsewhere;
END
$$;
