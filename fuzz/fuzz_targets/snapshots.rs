#![no_main]
nicstripe_fuzz::target!(nicstripe_cli::fuzz::snapshots);
