// Package quorum is the trust quorum of a rack as pure functions: who may be in
// it, the secret it holds, and how the secret is split, sent, recovered and handed
// on from epoch to epoch. Start with Split and Recover. It keeps no state and does
// no IO; randomness comes in as an argument.
//
// # The protocol
//
// A coordinator, one of the members, deals an epoch: Split makes a new rack secret,
// a share for each member, and a Configuration with the digest of each share. It
// seals each share to its member's key (ExchangeKey.Seal) and sends it with the
// configuration: the prepare. The member opens it, validates the configuration and
// checks the share against its digest (Configuration.CheckShare) before it stores
// both and answers. When every member has, the epoch is committed. From then on
// any Threshold of the members recover the secret (Recover), also when the
// coordinator is gone.
//
// The next epoch's coordinator first recovers the secret of the last committed
// epoch, from it all earlier ones (Configuration.Secrets), and encrypts them under
// the new one (Plan.Prior). So whoever can recover the newest secret has all.
//
// # What always holds
//
// Fewer than Threshold shares say nothing about the secret. A share that is not the
// one dealt is refused by name. A configuration that was not passed by Validate
// makes no share and recovers nothing. Two coordinators never need to agree:
// a higher epoch supersedes. Secrets, shares and exchange keys do not print.
//
// # Commitments, and the gap
//
// Split also makes Feldman's Commitments, by which a member can tell more than by
// its digest: that its share and everyone else's are of one secret. They have no
// place in the contract: a key share in clear is 64 bytes and nothing else, the
// members of the prepare request and of the configuration are fixed. So the digest
// is what a member must check, and the commitments travel beside the body of a
// prepare, in a header; a member checks its share by them too when they are there
// (Prepare.CheckShare). As nothing in the configuration binds them, a coordinator that lies could give each member
// others. It could as well keep the secret to itself: coordinators are trusted with
// the epoch they deal. The commitments catch faults, not lies.
//
// What catches the lie, late, is Recover: given more shares than the threshold it
// refuses shares that are not of one secret.
//
// Memory is not wiped after use: Go moves values around and gives no way to be
// sure.
package quorum
