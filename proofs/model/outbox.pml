/*
 * The outbox: writers number events under the lock of their stream, and dispatchers read them between two snapshots.
 * `npm run model` checks it in four configurations; docs/reference/model.md explains it. Lines that begin with @ are for replay.ts.
 *
 * One atomic step is what one statement of the server does at once: an append under a granted lock, a commit (visible before its
 * locks are free, which PostgreSQL guarantees), a read (one snapshot), a move of the cursor. Everything between two steps can happen
 * in any order. A process that is not scheduled for a while is one that was stopped; one that gives up what it has in hand is one that
 * was killed. Leases are not in this model: a dispatcher can take the shard at any time, as if the clocks were always wrong.
 */
#ifndef TXNS
#define TXNS 2        /* transactions of each of the two writers */
#endif
#ifndef EVENTS
#define EVENTS 4      /* in all */
#endif
#ifndef TICKS
#define TICKS 0
#endif
#ifndef TAKES
#define TAKES 3       /* how often the two dispatchers take the shard, in all */
#endif
#ifndef REFUSALS
#define REFUSALS 0    /* answers of the sink that refuse an event */
#endif
#ifndef FAILURES
#define FAILURES 0    /* crashes; with PROMOTION, promotions of a standby that is behind */
#endif
#ifndef BATCH
#define BATCH 2
#endif
#ifndef ABORTS
#define ABORTS 1      /* 0: every transaction commits */
#endif

#define STREAMS 2
#define BIT(x) (1 << (x))
#define HAS(set, x) (((set) >> (x)) & 1)

/* The invariants. A property that does not hold stops the verifier, which prints its name. */
bool O1 = true, O2 = true, O3 = true, O4 = true, O5 = true, O6 = true, O8 = true, O9 = true, E1 = true;
#define property(name, holds) name = (holds); assert(name)

/* Used within one step, and no part of the state. */
hidden byte i, other, seq, floor, count, resumed, tick;
hidden short passed;

/* ---- the database ------------------------------------------------------------------------------------------------------------ */

byte nextXid = 1, latest;      /* the next transaction id; the largest one that has ended */
short running, clog;           /* transactions in progress, and those that have committed */
byte locks[STREAMS];           /* the transaction that has the lock of the stream */
byte life = 1;                 /* the server epoch */

#define NEW 1
#define COMMITTED 2
#define GONE 3
byte ids;                      /* given out; never used again */
byte eXid[EVENTS + 1], eStream[EVENTS + 1], eSeq[EVENTS + 1], eState[EVENTS + 1];
#define committed(e) (eState[e] == COMMITTED)

#define shows(xmax, xip, x) ((x) < (xmax) && !HAS(xip, x))

#if TICKS > 0
byte ticks, tMax, tXid;        /* one tick: the snapshot that a writer has recorded */
short tXip;
#endif

byte cVersion, cFence, cPrevMax = 1, cNextMax = 1, cAfter;   /* the last cursor of the shard */
short cPrevXip, cNextXip;
bool cDone = true;
short aside;                   /* events that were put aside, by id */
#define delivered(e) (shows(cPrevMax, cPrevXip, eXid[e]) || (shows(cNextMax, cNextXip, eXid[e]) && (cDone || (e) <= cAfter)))

byte fences, takes;

#if FAILURES > 0
byte failures, wal, flushed;   /* places of the log */
byte xLsn[15];                 /* where the commit of a transaction is in it */
byte replicated;               /* what the failure leaves: a place of the log, and the cursor there */
byte dVersion, dFence, dPrevMax = 1, dNextMax = 1, dAfter, dAt, cAt;
short dPrevXip, dNextXip, daside;
bool dDone = true;
byte generation;
#define GENERATION 8
#ifdef PROMOTION
byte eGen[EVENTS + 1];
byte noted;                    /* the generation in which somebody took the shard last */
#endif

inline keep(upTo) {
  replicated = (upTo > replicated -> upTo : replicated);
  if
  :: cAt <= replicated && cAt > dAt ->
     dVersion = cVersion; dFence = cFence; dPrevMax = cPrevMax; dPrevXip = cPrevXip; dNextMax = cNextMax; dNextXip = cNextXip;
     dAfter = cAfter; dDone = cDone; daside = aside; dAt = cAt
  :: else
  fi
}
inline flush(upTo) {
  flushed = (upTo > flushed -> upTo : flushed);
#ifndef PROMOTION
  keep(flushed)
#endif
}
#endif

/* A transaction of its own that writes a cursor, without waiting for the disk. */
inline written() {
#if FAILURES > 0
  wal++; clog = clog | BIT(nextXid); xLsn[nextXid] = wal; latest = nextXid; nextXid++; cAt = wal
#else
  skip
#endif
}

/* ---- the sink ---------------------------------------------------------------------------------------------------------------- */

byte got[STREAMS];             /* the largest number that it has, of each stream */
short taken;                   /* events that it has, by id */
#if REFUSALS > 0
byte refusals;
#endif
#ifdef PROMOTION
byte gotGen[STREAMS * (EVENTS + 1)], gotId[STREAMS * (EVENTS + 1)];
#define AT(e) (eStream[e] * (EVENTS + 1) + eSeq[e])
#endif

/* In the order of first deliveries no number comes before the one before it. */
inline accept(e) {
  property(O6, eSeq[e] <= got[eStream[e]] + 1);
#ifdef PROMOTION
  /* A number that is given out again is marked: by a later generation. */
  property(O9, gotId[AT(e)] == 0 || gotId[AT(e)] == e || eGen[e] != gotGen[AT(e)]);
  gotId[AT(e)] = e; gotGen[AT(e)] = eGen[e];
#endif
  taken = taken | BIT(e);
  got[eStream[e]] = (eSeq[e] > got[eStream[e]] -> eSeq[e] : got[eStream[e]])
}

/* ---- writers ----------------------------------------------------------------------------------------------------------------- */

inline append(s) {
  locks[s] = xid;
  seq = 0;
  for (i : 1 .. EVENTS) {
    if
    :: eStream[i] == s && eState[i] != 0 && (committed(i) || (eXid[i] == xid && eState[i] == NEW)) && eSeq[i] > seq -> seq = eSeq[i]
    :: else
    fi
  }
  ids++;
  eXid[ids] = xid; eStream[ids] = s; eSeq[ids] = seq + 1; eState[ids] = NEW;
#ifdef PROMOTION
#ifdef EVENT_WITHOUT_GENERATION
  eGen[ids] = noted;
#else
  eGen[ids] = generation;
#endif
#endif
  skip
}

#if FAILURES > 0
#define LOST myLife != life
#else
#define LOST false
#endif
#ifdef NUMBER_WITHOUT_LOCK
#define FREE(s) true
#else
#define FREE(s) (locks[s] == 0 || locks[s] == xid)
#endif

inline finish() {
  latest = (xid > latest -> xid : latest);
  if :: locks[0] == xid -> locks[0] = 0 :: else fi;
  if :: locks[1] == xid -> locks[1] = 0 :: else fi;
  xid = 0; wrote = 0; second = false
}

/* Numbers follow commits: the one before is there, and no other event has this one. */
inline check(e) {
  seq = (eSeq[e] == 1); other = 1;
  do
  :: other <= EVENTS ->
     if
     :: other != e && committed(other) && eStream[other] == eStream[e] ->
        property(O1, eSeq[other] != eSeq[e]);
        if :: eSeq[other] == eSeq[e] - 1 -> seq = 1 :: else fi
     :: else
     fi;
     other++
  :: else -> break
  od;
  property(O1, seq == 1)
}

active [2] proctype Writer() {
  byte txn, xid, wrote;
  bool second;   /* it has the lock of the second stream: locks are taken in one order */
#if FAILURES > 0
  byte myLife;
#endif
  do
  :: atomic { txn < TXNS && ids < EVENTS ->
       txn++; xid = nextXid; nextXid++; running = running | BIT(xid);
#if FAILURES > 0
       myLife = life
#endif
     }
     do
#if FAILURES > 0
     :: atomic { LOST -> xid = 0; wrote = 0; second = false; break }
#endif
     :: atomic { !(LOST) && ids < EVENTS && wrote < 2 && !second && FREE(0) -> append(0); wrote++ }
     :: atomic { !(LOST) && ids < EVENTS && wrote < 2 && FREE(1) -> append(1); second = true; wrote++ }
#if TICKS > 0
     :: atomic { !(LOST) && wrote > 0 && ticks < TICKS ->
          ticks++; tXid = xid; tMax = latest + 1; tXip = running & (BIT(latest + 1) - 1);
#ifdef TICK_WITHOUT_OWN_XID
          tXip = tXip & ~BIT(xid);
#endif
          printf("@ tick %d %d %d\n", tXid, tMax, tXip)
        }
#endif
     :: atomic { !(LOST) && (wrote > 0 || ids == EVENTS) ->
          running = running & ~BIT(xid); clog = clog | BIT(xid);
#if FAILURES > 0
          wal++; xLsn[xid] = wal;
#endif
          for (i : 1 .. EVENTS) {
            if
            :: eState[i] == NEW && eXid[i] == xid ->
               eState[i] = COMMITTED;
               printf("@ event %d %d %d %d\n", i, eXid[i], eStream[i], eSeq[i]);
               check(i)
            :: else
            fi
          }
          finish();
          break
        }
#if ABORTS > 0
     :: atomic { !(LOST) && wrote > 0 ->
          running = running & ~BIT(xid);
          for (i : 1 .. EVENTS) {
            if
            :: eState[i] == NEW && eXid[i] == xid -> eState[i] = GONE
            :: else
            fi
          }
          finish();
          break
        }
#endif
     od
  :: atomic { txn == TXNS || ids == EVENTS -> break }
  od
}

/* ---- dispatchers ------------------------------------------------------------------------------------------------------------- */

#ifdef OPEN_WRITERS_FORGOTTEN
#define NEW_SINCE(x) ((x) >= aMax)
#else
#define NEW_SINCE(x) (!shows(aMax, aXip, x))
#endif
#ifdef WINDOW_WITHOUT_HORIZON
#define BEFORE_END(x) ((x) < zMax)
#else
#define BEFORE_END(x) shows(zMax, zXip, x)
#endif

/* Something is committed that the cursor does not count as delivered. */
#define PENDING(e) (committed(e) && !delivered(e))
#if EVENTS == 3
#define SOMETHING (PENDING(1) || PENDING(2) || PENDING(3))
#elif EVENTS == 4
#define SOMETHING (PENDING(1) || PENDING(2) || PENDING(3) || PENDING(4))
#elif EVENTS == 5
#define SOMETHING (PENDING(1) || PENDING(2) || PENDING(3) || PENDING(4) || PENDING(5))
#else
#define SOMETHING (PENDING(1) || PENDING(2))
#endif
#ifdef WOKEN_BY_SEQUENCE
#define LOOKS (SOMETHING && seen != ids)
#else
#define LOOKS SOMETHING
#endif

/* Of sets with at most seven members. */
#define ones(set) (HAS(set, 1) + HAS(set, 2) + HAS(set, 3) + HAS(set, 4) + HAS(set, 5) + HAS(set, 6) + HAS(set, 7))

/* What is visible in the end of the window and not in its beginning, by id; a long way in steps from tick to tick. */
inline read() {
  resumed = !cDone;
  if
  :: cDone -> aMax = cNextMax; aXip = cNextXip; floor = 0; zMax = 0
  :: else -> aMax = cPrevMax; aXip = cPrevXip; floor = cAfter; zMax = cNextMax; zXip = cNextXip
  fi;
  do
  :: true ->
     tick = false;
     if
     :: zMax == 0 ->
#if TICKS > 0
        if
        :: ticks > 0 && HAS(clog, tXid) && (tMax > aMax || (tMax == aMax && ones(tXip) < ones(aXip))) ->
           zMax = tMax; zXip = tXip; tick = true
        :: else -> zMax = latest + 1; zXip = running & (BIT(latest + 1) - 1)
        fi
#else
        zMax = latest + 1; zXip = running & (BIT(latest + 1) - 1)
#endif
     :: else
     fi;
     batch = 0; count = 0; last = 0; whole = true;
     for (i : 1 .. EVENTS) {
       if
       :: committed(i) && i > floor && NEW_SINCE(eXid[i]) && BEFORE_END(eXid[i]) ->
          if
          :: count < BATCH -> batch = batch | BIT(i); count++; last = i
          :: else -> whole = false
          fi
       :: else
       fi
     }
     if
     :: batch == 0 && (tick || resumed) -> resumed = false; aMax = zMax; aXip = zXip; zMax = 0; floor = 0
     :: else -> break
     fi
  od;
#ifndef REPLAYED   /* A run that is compared with replay.ts goes on to where it shows. */
  /* What was read has, with each event, the one before it; or that one is delivered. */
  for (i : 1 .. EVENTS) {
    if
    :: HAS(batch, i) && eSeq[i] > 1 ->
       seq = 0;
       for (other : 1 .. EVENTS) {
         if
         :: committed(other) && eStream[other] == eStream[i] && eSeq[other] == eSeq[i] - 1 && (delivered(other) || HAS(batch, other)) -> seq = 1
         :: else
         fi
       }
       property(O2, seq == 1)
    :: else
    fi
  }
#endif
}
#if REFUSALS > 0
#define STOPPED stopped
#ifdef STREAM_NOT_PARKED
#define PUT_ASIDE 0
#else
#define PUT_ASIDE stopped
#endif
#else
#define STOPPED 0
#define PUT_ASIDE 0
#endif
#if FAILURES > 0
#define myEpochIsOver (myLife != life)
#else
#define myEpochIsOver false
#endif

#ifdef CURSOR_WITHOUT_FENCE
#define OWNS true
#elif defined(MOVED_IN_ANY_EPOCH)
#define OWNS (cFence == fence && cVersion == version)
#else
#define OWNS (cFence == fence && cVersion == version && SAME_EPOCH)
#endif
#if FAILURES > 0
#define SAME_EPOCH (myLife == life)
#else
#define SAME_EPOCH true
#endif

/* On to the next event of the batch whose stream does not wait. */
inline next() {
  at++;
  do
  :: at > EVENTS -> break
#if REFUSALS > 0
  :: at <= EVENTS && HAS(batch, at) && HAS(flagged, eStream[at]) -> stopped = stopped | BIT(at); at++
  :: at <= EVENTS && HAS(batch, at) && !HAS(flagged, eStream[at]) -> break
#else
  :: at <= EVENTS && HAS(batch, at) -> break
#endif
  :: at <= EVENTS && !HAS(batch, at) -> at++
  od
}

/* What was read is not in hand any more. */
inline clear() {
  version = 0; batch = 0; at = 0; last = 0; whole = false; aMax = 0; aXip = 0; zMax = 0; zXip = 0;
#if REFUSALS > 0
  stopped = 0; flagged = 0; tried = 0;
#endif
#if FAILURES > 0
  place = 0
#else
  skip
#endif
}

inline forget() {
  clear();
#if FAILURES > 0
  myLife = 0;
#endif
  fence = 0
}

active [2] proctype Dispatcher() {
  byte fence, version, aMax, zMax, last;
  byte at;   /* the event of the batch that is sent next */
  short aXip, zXip, batch;
  bool whole;
#if REFUSALS > 0
  byte flagged, tried;
  short stopped;
#endif
#ifdef WOKEN_BY_SEQUENCE
  byte seen = 255;
#endif
#if FAILURES > 0
  byte myLife, place;
#endif

endAcquire:
  atomic { takes < TAKES ->
    takes++;
#if FAILURES > 0
    myLife = life;
#ifdef PROMOTION
    noted = generation;
#endif
#endif
    fences++;
#if FAILURES > 0
    fence = generation * GENERATION + fences
#else
    fence = fences
#endif
  }
  /* The fence is written into the cursor before the cursor is read. */
  atomic {
    if
    :: cFence < fence && SAME_EPOCH ->
       cVersion++; cFence = fence; version = cVersion; written();
       printf("@ take %d %d\n", cVersion, cFence)
    :: else -> forget(); goto endAcquire
    fi
  }

endLook:
  atomic {
    if
    :: cFence != fence || !(SAME_EPOCH) -> forget(); goto endAcquire
    :: cFence == fence && SAME_EPOCH && LOOKS ->
       version = cVersion;
#ifdef WOKEN_BY_SEQUENCE
       seen = ids;
#endif
#if FAILURES > 0
       place = wal;
#endif
       read();
#if REFUSALS > 0
       /* Streams of which events wait: theirs are put aside, not sent. */
       for (i : 1 .. EVENTS) {
         if
         :: HAS(aside, i) -> flagged = flagged | BIT(eStream[i])
         :: else
         fi
       }
#endif
       if
       :: batch == 0 -> clear(); goto endLook
       :: else -> next()
       fi
#if REFUSALS > 0
    :: cFence == fence && SAME_EPOCH && aside != 0 -> goto again
#endif
    :: takes < TAKES -> forget(); goto endAcquire
    fi
  }

#if FAILURES > 0
  /* Everything that it shows is on disk, in the same server epoch, before anything is sent. */
  atomic {
    if
    :: myLife == life ->
#ifndef SENT_BEFORE_DURABLE
       flush(place)
#endif
#ifdef WINDOW_KEPT_OVER_CRASH
    :: myLife != life -> flush(wal)
#else
    :: myLife != life -> forget(); goto endAcquire
#endif
    fi
  }
#endif

  do
  :: atomic { at <= EVENTS ->
       printf("@ sent %d 0 %d %d %d 1\n", fence, at, eStream[at], eSeq[at]);
#if FAILURES > 0
#if !defined(PROMOTION) && !defined(SENT_BEFORE_DURABLE)
       /* (Behind a standby that does not wait, what was on disk can be gone: then its number comes again, see O9.) */
       property(E1, committed(at) || HAS(taken, at));
#endif
#endif
       accept(at);
       next()
     }
#if REFUSALS > 0
  :: atomic { at <= EVENTS && refusals < REFUSALS ->
       refusals++; stopped = stopped | BIT(at);
#ifndef SENT_AFTER_FAILURE
       flagged = flagged | BIT(eStream[at]);
#endif
       printf("@ sent %d 0 %d %d %d 0\n", fence, at, eStream[at], eSeq[at]);
       next()
     }
#endif
  :: atomic { at <= EVENTS && takes < TAKES -> forget(); goto endAcquire }
     /* The cursor moves from the version that was read, and in the same step what was not accepted is put aside. */
  :: atomic { at > EVENTS ->
       if
       :: OWNS ->
          passed = 0;
          for (i : 1 .. EVENTS) {
            if
            :: committed(i) && !delivered(i) -> passed = passed | BIT(i)
            :: else
            fi
          }
          printf("@ move %d %d %d %d %d %d %d %d %d\n", cVersion + 1, fence, aMax, aXip, zMax, zXip, last, whole, PUT_ASIDE);
          /* Only the owner moves it. */
          property(O4, cFence == fence || myEpochIsOver);
          cVersion++; cPrevMax = aMax; cPrevXip = aXip; cNextMax = zMax; cNextXip = zXip; cAfter = last; cDone = whole;
#if REFUSALS > 0
          aside = aside | PUT_ASIDE;
#endif
          written();
          /* What it passes has reached the sink, or is put aside. */
          for (i : 1 .. EVENTS) {
            if
            :: HAS(passed, i) && delivered(i) && !HAS(taken, i) && !HAS(aside, i) ->
               property(O9, !(myEpochIsOver));
               property(O5, !HAS(STOPPED, i));
               property(O2, false)
            :: else
            fi
          }
          clear();
          goto endLook
       :: else -> forget(); goto endAcquire
       fi
     }
  od;

#if REFUSALS > 0
again:
  /* The first event that waits of a stream is tried again; the sink accepts it now. */
  atomic {
    tried = 0;
    for (i : 1 .. EVENTS) {
      if
      :: HAS(aside, i) && tried == 0 -> tried = i
      :: else
      fi
    }
  }
  atomic {
    printf("@ sent %d 1 %d %d %d 1\n", fence, tried, eStream[tried], eSeq[tried]);
    accept(tried)
  }
  atomic {
    if
    :: cFence == fence && SAME_EPOCH -> aside = aside & ~BIT(tried); tried = 0; goto endLook
    :: else -> forget(); goto endAcquire
    fi
  }
#endif
}
#if FAILURES > 0
/* The disk, or a standby, follows. */
active proctype Disk() {
end:
  do
  :: atomic { replicated < wal && failures < FAILURES ->
#ifdef PROMOTION
       keep(wal)
#else
       flush(wal)
#endif
     }
  od
}

/* Every transaction in progress ends, and what was not on disk (or on the standby) is gone. Transaction ids are given out again. */
active proctype Failure() {
end:
  do
  :: atomic { failures < FAILURES ->
       failures++; life++; running = 0; locks[0] = 0; locks[1] = 0; wal = replicated; flushed = replicated;
       latest = 0; clog = 0;
       for (i : 1 .. 14) {
         if
         :: xLsn[i] > replicated -> xLsn[i] = 0
         :: xLsn[i] > 0 && xLsn[i] <= replicated -> latest = i; clog = clog | BIT(i)
         :: else
         fi
       }
       nextXid = latest + 1;
       for (i : 1 .. EVENTS) {
         if
         :: eState[i] == NEW || (eState[i] == COMMITTED && !HAS(clog, eXid[i])) -> eState[i] = GONE; printf("@ lost %d\n", i);
#ifndef PROMOTION
            /* What was sent was on disk before. */
            property(O3, !HAS(taken, i))
#endif
         :: else
         fi
       }
       cVersion = dVersion; cFence = dFence; cPrevMax = dPrevMax; cPrevXip = dPrevXip; cNextMax = dNextMax; cNextXip = dNextXip;
       cAfter = dAfter; cDone = dDone; aside = daside; cAt = dAt;
       printf("@ failure %d\n", cVersion);
#ifdef PROMOTION
       generation++; fences = 0;
#endif
       takes = (takes == TAKES -> TAKES - 1 : takes)
     }
  od
}
#endif

/* When nothing goes on any more, everything that is committed has been sent. */
active proctype Judge() {
end:
  atomic { timeout ->
    printf("@ end\n");
    for (i : 1 .. EVENTS) {
      if
#if FAILURES > 0
      :: committed(i) -> property(O9, HAS(taken, i))
#else
      :: committed(i) -> property(O8, HAS(taken, i))
#endif
      :: else
      fi
    }
  }
}
