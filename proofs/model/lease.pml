/*
 * A lease with heartbeats, guarded transactions and a failover: two callers, one lease, discrete time.
 *
 * The time is everybody's; the server's clock is ahead of it by `skew`, which a promotion changes. A question, its decision at the server
 * and its answer are three steps, between which any time can pass: a message that is late, and a process that was stopped. Callers
 * here trust the whole ttl. The library trusts nine tenths of it, which leaves room for late timers.
 * With CRASH, what is not on disk goes with the server. With PROMOTION, a standby that is behind by any amount takes over, with a clock
 * of its own. With SYNCHRONOUS as well, the standby has every grant and every renewal, and the new server grants at once what is not held.
 */
#ifndef TIME
#define TIME 6
#endif
#ifndef GRANTS
#define GRANTS 3   /* on one server */
#endif
#define TTL 2

bool L1 = true, L2 = true, L3 = true, L5 = true, L6 = true;
#define property(name, holds) name = (holds); assert(name)

byte now, skew = 2;
#define clock (now + skew)

/* The row of the lease. */
byte rToken, rFence, rExpires;
byte keyShare;               /* the caller whose transaction has locked the row */
byte sequence;
/* What a failure leaves, and the clock when it was written. */
byte dToken, dFence, dExpires, dSequence, dAt;
bool begun = true;           /* the server epoch */
byte server, grantsFrom;     /* server: failures so far */

/* Of each caller: until when it trusts the lease, and with which fence. */
byte until[3], fenceOf[3];
byte granted;                /* the last fence that was given out */
#define trusts(c) (until[c] > now)

#ifdef PROMOTION
#define elsewhere (server == 1)   /* the row is another server's, which can lack what was granted */
#else
#define elsewhere false
#endif
/* One caller trusts the lease at a time, and none of them for longer than its row lasts. */
inline look() {
#ifdef PROMOTION
  property(L6, server == 0 || !(trusts(1) && trusts(2)));
#endif
  property(L1, server == 1 || !(trusts(1) && trusts(2)));
  property(L2, elsewhere || !trusts(1) || rToken != 1 || rFence != fenceOf[1] || rExpires > clock || !begun);
  property(L2, elsewhere || !trusts(2) || rToken != 2 || rFence != fenceOf[2] || rExpires > clock || !begun)
}

inline keep() {
  dToken = rToken; dFence = rFence; dExpires = rExpires;
#ifdef PROMOTION
  dAt = clock
#else
  dSequence = sequence
#endif
}
/* Acquiring and renewing are on disk before they are answered. */
inline toDisk() {
#if defined(CRASH) && !defined(ANSWERED_BEFORE_DISK)
  keep()
#elif defined(SYNCHRONOUS)
  if
  :: server == 0 -> keep()
  :: else
  fi
#else
  skip
#endif
}

/* What was held at the last known moment of the old clock is held for its ttl by this one. If a row can be missing, nothing else is granted for as long. */
inline ensureEpoch() {
  if
  :: !begun ->
     begun = true;
#ifdef PROMOTION
#ifndef JUDGED_BY_ANOTHER_CLOCK
     rExpires = (rToken != 0 && rExpires > dAt -> clock + TTL : (rExpires < clock -> rExpires : clock));
#endif
#if !defined(GRANTED_AT_ONCE_AFTER_FAILOVER) && !defined(SYNCHRONOUS)
     grantsFrom = clock + TTL;
#endif
     dAt = 0
#endif
  :: else
  fi
}

#ifdef PROMOTION
#define FENCE (server * 16 + sequence)
#else
#define FENCE sequence
#endif

#define takeable (sequence < GRANTS && keyShare == 0 && clock >= grantsFrom && (rToken == 0 || rExpires <= clock))
inline grant(c) {
#ifndef FENCE_USED_AGAIN
  sequence++;
#endif
  rToken = c; rFence = FENCE; rExpires = clock + TTL;
  property(L1, rFence > granted);
  granted = rFence;
  toDisk()
}

#ifdef EARLIER_TRY_COUNTS_AT_ONCE
#define EARLIER_TRY_COUNTS true
#else
#define EARLIER_TRY_COUNTS (clock >= grantsFrom)
#endif

/* Messages that are on their way, and that nobody waits for any more: the fence of a heartbeat, and of a release. */
byte lateRenewal[3], lateRelease[3];

inline renew(c, fence) {
  ensureEpoch();
#ifdef RENEWED_BY_UPSERT
  if
  :: keyShare == 0 || rToken == c -> rToken = c; rFence = fence; rExpires = clock + TTL; toDisk()
#else
  if
  :: rToken == c && rFence == fence && rExpires > clock -> rExpires = clock + TTL; toDisk()
#endif
  :: else
  fi
}

proctype Caller(byte me) {
  byte askedAt, fence;
  bool answered;
#ifdef TAKEN_WITHOUT_ROW_LOCK
  bool seen;
#endif
end:
  do
  :: atomic { !trusts(me) && now < TIME -> askedAt = now; fenceOf[me] = 0 }
     /* It asks for the lease: the decision, and then the answer, if it comes. */
#ifdef TAKEN_WITHOUT_ROW_LOCK
     atomic { ensureEpoch(); seen = takeable }
     atomic {
       if
       :: seen -> grant(me); fence = rFence; seen = false
       :: else
       fi
     }
#else
     atomic {
       ensureEpoch();
       if
       /* An earlier try of its own. After a failover another caller can have been granted the lease since, on the old server. */
       :: rToken == me && rExpires > clock && lateRelease[me] != rFence && EARLIER_TRY_COUNTS ->
          rExpires = clock + TTL; fence = rFence; toDisk()
       :: takeable -> grant(me); fence = rFence
       :: else
       fi
     }
#endif
     if
     :: atomic { fence != 0 ->
#ifdef TRUST_FROM_ANSWER
          until[me] = now + TTL;
#else
          until[me] = askedAt + TTL;
#endif
          fenceOf[me] = fence; look()
        }
     :: true
     fi;
     atomic { fence = 0; askedAt = 0 }

  :: atomic { trusts(me) -> askedAt = now }
     /* A heartbeat: answered, or on its way for who knows how long. */
     if
     :: atomic { true -> renew(me, fenceOf[me]); answered = (rToken == me && rFence == fenceOf[me] && rExpires > clock) }
        if
        :: atomic { answered && trusts(me) ->
#ifdef HEARTBEAT_TRUSTED_FROM_ANSWER
             until[me] = now + TTL;
#else
             until[me] = askedAt + TTL;
#endif
             look()
           }
        :: atomic { !answered -> until[me] = 0 }
        :: true
        fi
#ifndef WITHOUT_LATE_MESSAGES
     :: atomic { lateRenewal[me] == 0 -> lateRenewal[me] = fenceOf[me] }
#endif
     fi;
     atomic { answered = false; askedAt = 0 }

#ifndef WITHOUT_LATE_MESSAGES
  :: atomic { trusts(me) -> until[me] = 0; lateRelease[me] = fenceOf[me] }
#else
  /* It releases the lease. */
  :: atomic { trusts(me) ->
       until[me] = 0;
       if
       :: rToken == me && rFence == fenceOf[me] -> rToken = 0; rExpires = clock
       :: else
       fi
     }
#endif
  od
}

/* Messages that come late, and releases that come twice. */
inline release(c) {
  if
#ifdef RELEASE_WITHOUT_TOKEN
  :: true ->
#else
  :: rToken == c && rFence == lateRelease[c] ->
#endif
     /* It ends the lease of the caller that has released it. */
     property(L5, rToken == 0 || rToken == c || !trusts(rToken));
     rToken = 0; rExpires = clock
  :: else
  fi
}
active proctype Late() {
end:
  do
#ifndef WITHOUT_LATE_MESSAGES
  :: atomic { lateRenewal[1] != 0 -> renew(1, lateRenewal[1]); lateRenewal[1] = 0; look() }
  :: atomic { lateRenewal[2] != 0 -> renew(2, lateRenewal[2]); lateRenewal[2] = 0; look() }
  :: atomic { lateRelease[1] != 0 -> release(1) }
  :: atomic { lateRelease[2] != 0 -> release(2) }
#else
  :: false
#endif
  od
}

/* A transaction of a holder. The guard does not begin the epoch. */
proctype Transaction(byte me) {
  byte on, fence;
end:
  do
  :: atomic { trusts(me) && rToken == me && rFence == fenceOf[me] && (!begun || rExpires > clock) && keyShare == 0 ->
       on = server; fence = rFence;
#ifndef NO_FOR_KEY_SHARE
       keyShare = me
#endif
     }
     atomic {
       if
       :: on == server ->
          /* It commits, whenever that is: no other caller was granted the lease meanwhile. */
          property(L3, rFence == fence);
          keyShare = (keyShare == me -> 0 : keyShare)
       :: else   /* its connection is gone */
       fi;
       on = 0; fence = 0
     }
  od
}

active proctype Time() {
end:
  do
  :: atomic { now < TIME -> now++; look() }
  od
}

#if defined(CRASH) || defined(PROMOTION)
active proctype Failure() {
end:
  do
#ifdef PROMOTION
  :: atomic { server == 0 -> keep() }   /* the standby follows */
#endif
  :: atomic { server == 0 ->
       server = 1; begun = false; keyShare = 0; rToken = dToken; rFence = dFence; rExpires = dExpires; sequence = dSequence;
       dToken = 0; dFence = 0; dExpires = 0; dSequence = 0;
#ifdef PROMOTION
       sequence = 0; grantsFrom = 0;
       if
       :: skew = 0
       :: skip
       :: skew = 4
       fi
#endif
     }
  od
}
#endif

init {
  atomic {
    run Caller(1); run Caller(2);
#ifndef WITHOUT_TRANSACTIONS
    run Transaction(1); run Transaction(2)
#endif
  }
}
