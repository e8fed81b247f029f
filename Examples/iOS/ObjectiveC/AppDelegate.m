// The ways in which an app in Objective-C receives messages, as explained in docs/use/iOS.md. The client itself shows nothing.
#import "AppDelegate.h"
@import LongwireClient;

static NSString *const kGroup = @"group.com.example.app";

@interface AppDelegate () <LWClientDelegate>
@property(nonatomic) LWClient *client;
@property(nonatomic) BOOL pagesAreReady;
@end

@implementation AppDelegate

- (NSString *)pathOf:(NSString *)name {
    NSURL *folder = [NSFileManager.defaultManager containerURLForSecurityApplicationGroupIdentifier:kGroup];
    return [folder.path stringByAppendingPathComponent:name];
}

// Launch by the icon: the client connects, and queued messages arrive in order.
- (BOOL)application:(UIApplication *)application didFinishLaunchingWithOptions:(NSDictionary *)options {
    LWConfiguration *configuration = [[LWConfiguration alloc] initWithHost:@"gateway.example.com"
                                                                      port:7443
                                                                     appID:@"demo"
                                                                 appSecret:@"demo-app-secret"
                                                                 statePath:[self pathOf:@"longwire.state"]];
    self.client = [[LWClient alloc] initWithConfiguration:configuration];
    self.client.delegate = self;
    // The delegate must be set before this method returns. Otherwise the system does not report the tap that launched the app.
    UNUserNotificationCenter.currentNotificationCenter.delegate = self;
    [self.client reportShownInFile:[self pathOf:@"longwire.shown"]];
    NSError *error = nil;
    if (![self.client startAndReturnError:&error]) NSLog(@"no messages: %@", error);
    [application registerForRemoteNotifications];
    return YES;
}

// A message over the connection; the client acks it when this method has returned.
- (void)longwireClient:(LWClient *)client didReceiveMessage:(LWMessage *)message {
    [self store:message.payload id:message.messageID];
    // A message that is not new appears only in the inbox, because a notification could repeat its alert.
    if (!message.isNew) return;
    UNNotificationRequest *request = message.notificationRequest;
    if (request != nil) {
        [UNUserNotificationCenter.currentNotificationCenter addNotificationRequest:request withCompletionHandler:nil];
        [client reportShown:message];
    }
}

- (void)longwireClient:(LWClient *)client didConnectWithClientID:(NSString *)clientID {
    NSLog(@"the client id for the app's server: %@", clientID);
}

// Launch by a tap, or a tap while the app runs: the tap is kept until the app can show a page.
- (void)userNotificationCenter:(UNUserNotificationCenter *)center
    didReceiveNotificationResponse:(UNNotificationResponse *)response
             withCompletionHandler:(void (^)(void))done {
    [self.client keepTap:response];
    [self openTaps];
    done();
}

- (void)openTaps {
    if (!self.pagesAreReady) return;
    for (LWNotification *tap in [self.client takeTaps]) [self openPage:tap.url ?: tap.jumpClassName payload:tap.payload];
}

// Foreground: the connection delivers the message, so the system does not show the push.
- (void)userNotificationCenter:(UNUserNotificationCenter *)center
       willPresentNotification:(UNNotification *)notification
         withCompletionHandler:(void (^)(UNNotificationPresentationOptions))show {
    show([self.client presentationOptionsForNotification:notification]);
}

// Background: report the state before iOS suspends the app.
- (void)applicationDidEnterBackground:(UIApplication *)application {
    [self.client applicationDidEnterBackground];
}

- (void)applicationDidBecomeActive:(UIApplication *)application {
    [self.client applicationDidBecomeActive];
    [self.client setBadge:0 keepsNotifications:YES];
    self.pagesAreReady = YES;
    [self openTaps];
}

- (void)applicationWillTerminate:(UIApplication *)application {
    [self.client applicationWillTerminate];
}

// Silent push: the queued messages arrive in `didReceiveMessage`.
- (void)application:(UIApplication *)application
    didReceiveRemoteNotification:(NSDictionary *)userInfo
          fetchCompletionHandler:(void (^)(UIBackgroundFetchResult))done {
    [self.client handleRemoteNotification:userInfo
                               completion:^(NSInteger result) {
                                   done(result < 0 ? UIBackgroundFetchResultNoData : (UIBackgroundFetchResult)result);
                               }];
}

- (void)application:(UIApplication *)application
    didRegisterForRemoteNotificationsWithDeviceToken:(NSData *)token {
    NSError *error = nil;
    if (![self.client setDeviceToken:token topic:@"com.example.app" error:&error]) NSLog(@"no alerts: %@", error);
}

// The user's answer, sent as a message to the app's server.
- (void)answer:(NSString *)text {
    if (![self.client sendPayload:[text dataUsingEncoding:NSUTF8StringEncoding]]) NSLog(@"the answer is too long");
}

// The user signs in: pushes to the alias of the user reach this device, if the app's setting `deviceMay` has `alias`.
- (void)signedInAs:(NSString *)user {
    [self.client bindAlias:user
                      type:@""
                completion:^(NSError *error) {
                    if (error != nil) NSLog(@"no alias: %@", error);
                }];
}

// The code of the app itself.
- (void)store:(NSData *)payload id:(NSString *)messageID {
}
- (void)openPage:(NSString *)name payload:(NSString *)payload {
}

@end
