#![no_main]
nicstripe_fuzz::target!(nicstripe_proto::fuzz::invitations);
