/*
 * The hand-over to SERIALIZABLE and REPEATABLE READ (docs/decisions/0003-hand-over.md): three sessions, one key, two transactions each.
 *
 * A statement takes its snapshot first and its locks afterwards. So the first of two transactions gets the lock as a session lock, and
 * the second one takes it over in the statement that takes the snapshot. Any wait, and any statement, can fail or be cancelled.
 */
#define TRANSACTIONS 2

bool I2 = true, I4 = true;
#define property(name, holds) name = (holds); assert(name)

byte sessionLock, transactionLock;   /* the session that has the lock */
byte version;                        /* of what the lock protects: commits so far */
#define free(p) ((sessionLock == 0 || sessionLock == p) && (transactionLock == 0 || transactionLock == p))

inline commitAndChain() { transactionLock = (transactionLock == me -> 0 : transactionLock) }
inline unlockSession() { sessionLock = (sessionLock == me -> 0 : sessionLock) }

proctype Session(byte me) {
  byte snapshot, count;
  bool tried;
  do
  :: count < TRANSACTIONS ->
     count++; snapshot = 0; tried = false;
#ifdef LOCK_AFTER_SNAPSHOT
     goto second;
#endif
     if
     :: atomic { true -> /* The first message only tries. */
          if
          :: free(me) -> sessionLock = me; tried = true
          :: else -> tried = false
          fi
        }
        /* COMMIT AND CHAIN; the statement of the second transaction takes its snapshot, and then looks at the locks. */
        snapshot = version;
        if
        :: atomic { tried -> transactionLock = me; unlockSession() } goto inside
#ifdef LATE_GRANT_COUNTS
        :: atomic { !tried && free(me) -> transactionLock = me } goto inside
#endif
        :: atomic { !tried -> goto wait }
        :: goto failed
        fi
     :: skip
     fi;
wait:
     if
     :: atomic { free(me) -> transactionLock = me }
     :: goto failed
     fi;
#ifndef HAND_OVER_LETS_GO
     if
     :: sessionLock = me
     :: goto failed
     fi;
#endif
     commitAndChain();
#if defined(LOCK_AFTER_SNAPSHOT) || defined(HAND_OVER_LETS_GO)
second:
#endif
     snapshot = version;
     if
     :: atomic { free(me) -> transactionLock = me; unlockSession() }
     :: goto failed
     fi;
inside:
     /* What it reads is what the last holder has left, so that it can write without a serialization failure. */
     atomic { property(I2, snapshot == version) }
     if
     :: atomic { property(I2, snapshot == version); version++ }   /* visible first, and then its locks are free */
     :: skip                                                      /* rolled back */
     fi;
     atomic { commitAndChain(); snapshot = 0; tried = false }
     goto next;
failed:
     /* ROLLBACK AND CHAIN, unlock what may be left, COMMIT. */
     commitAndChain();
#ifndef FAILURE_LEAVES_LOCK
     unlockSession();
#endif
     snapshot = 0; tried = false;
next:
     skip
  :: count == TRANSACTIONS -> break
  od
}

init { atomic { run Session(1); run Session(2); run Session(3) } }

/* Nothing is left, and nobody waits for ever. */
active proctype Judge() {
end:
  atomic { timeout -> property(I4, sessionLock == 0 && transactionLock == 0) }
}
