//! Options for the account of an S3 store.

use clap::Args;
use nicstripe_web::{Account, AccountOptions};

use crate::{failure::Failure, text::first_true};

/// Options that say where an S3 store is, and who asks.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct StoreArgs {
    /// URL of the S3 store [default: AWS_ENDPOINT_URL, or Amazon]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,

    /// Region of the S3 store [default: AWS_REGION, that of the profile, or us-east-1]
    #[arg(long, value_name = "NAME")]
    region: Option<String>,

    /// Profile of ~/.aws with the credentials for the S3 store [default: AWS_PROFILE, or default]
    #[arg(long, value_name = "NAME")]
    aws_profile: Option<String>,

    /// Ask this machine's metadata service (EC2) for credentials, too
    #[arg(long)]
    imds: bool,

    /// Sign no requests to an S3 store: for public buckets
    #[arg(long)]
    no_sign_request: bool,
}

impl StoreArgs {
    pub(crate) fn first_option(&self) -> Option<&'static str> {
        first_true([
            (self.endpoint.is_some(), "--endpoint"),
            (self.region.is_some(), "--region"),
            (self.aws_profile.is_some(), "--aws-profile"),
            (self.imds, "--imds"),
            (self.no_sign_request, "--no-sign-request"),
        ])
    }

    pub(crate) fn account(&self) -> Result<Account, Failure> {
        let mut options = AccountOptions::default();
        options.endpoint = self.endpoint.clone();
        options.region = self.region.clone();
        options.profile = self.aws_profile.clone();
        (options.instance, options.anonymous) = (self.imds, self.no_sign_request);
        Ok(Account::new(options)?)
    }
}
